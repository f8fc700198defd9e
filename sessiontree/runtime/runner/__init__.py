"""The runner of one session: stimuli in, instructions carried out, facts out."""
