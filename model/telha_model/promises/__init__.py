"""The predicates behind the promises, by what they speak about; `invariants` gives them their names."""
