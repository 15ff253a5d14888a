# It counts attempts to find rank 0.
target_link_options(test_rendezvous_late PRIVATE LINKER:--wrap=net_connect)
# It counts how often a name is looked up, in how many rounds, and lets the deadline pass in a try.
target_link_options(test_first_cause PRIVATE LINKER:--wrap=net_look_up LINKER:--wrap=net_pause
		    LINKER:--wrap=net_connect)
