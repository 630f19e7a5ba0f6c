"""Which bytes an array covers, how two arrays are copied, and which arrays containers hold."""
