"""Tasks whose bodies are coroutines: the tasks, their event loops, and waits that give way to a loop."""
