"""The paper's tables and figures, each made by one command, and the page that holds them."""
