"""What runs sessions: ``ray``, each live session an actor, and ``local``, everything in this process."""
