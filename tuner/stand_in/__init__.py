"""A stand-in for an accelerator that this machine lacks, for programs and modules that are only read or recorded."""
