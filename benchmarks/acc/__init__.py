"""What OpenACC's queues gain over blocking calls."""
