"""What recorded rows say: summaries, views, plots. Everything here reads a record and changes nothing."""
