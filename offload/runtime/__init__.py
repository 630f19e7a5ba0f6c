"""Where tasks, data, events and devices meet: settings, places, launches, queues, and the runtime itself."""
