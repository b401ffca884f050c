"""Search: the best settings of each method within a budget."""
