"""The operations' effects: one module per family. Each exports its `Rule`s; `step` gathers them."""
