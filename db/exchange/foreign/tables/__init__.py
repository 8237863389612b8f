"""Tables of configs or trials: vLLM and SGLang, FlagGems, CSV and Parquet."""
