"""Reports on one config's modelled time: tables, traces and drawings."""
