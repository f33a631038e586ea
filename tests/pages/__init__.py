"""What the pages say is tried: their commands run, their code runs, their counts are counted."""
