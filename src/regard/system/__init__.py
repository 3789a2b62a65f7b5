"""Files, processes and text: what differs between systems, and is the same for every area."""
