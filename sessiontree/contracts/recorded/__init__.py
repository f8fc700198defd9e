"""Parts of facts: requests, answers, results and senders, and the codec that journals them."""
