"""From records to something a person reads: text, HTML, tables, saved files. Pure: no torch, no display, no state."""
