"""The code that connects tasks, data, events and devices: settings, places, launches, queues, the runtime itself."""
