"""The commands' signatures and help, a file for what people do; bodies are imported when called."""
