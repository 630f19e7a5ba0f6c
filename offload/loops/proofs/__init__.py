"""What is proved about a nest: where accesses meet, which indices stay inside, what feeds what."""
