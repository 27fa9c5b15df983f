"""The pure core: records, and the decisions over them. No store, no codec, no clock."""
