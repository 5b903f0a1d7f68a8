"""One module per peer, each driving the peer as its own documentation shows.

A peer is imported only inside its worker process, when its contender is made, so an absent one costs a row and no more.
"""
