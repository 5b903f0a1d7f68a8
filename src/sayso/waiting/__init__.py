"""What a hold does to the program: raise, or block where the call stands."""
