"""Rows as version 1 wrote them, byte for byte. They stay as they are for ever: whoever reads them must go on so."""
