"""The success metrics of the seed specification (§12), under their names; recovery has a lane of its own."""
