"""What a reproduction shows: tables and figures beside the paper's, and its statements, checked."""
