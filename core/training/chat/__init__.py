"""The process that holds a model's weights and answers: `python -m core.training.chat HOME`, JSON lines in and out."""
