"""The two backends: ``ray`` runs each live session in an actor, ``local`` runs everything in this process."""
