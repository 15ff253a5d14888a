# It counts attempts to find rank 0.
target_link_options(test_rendezvous_late PRIVATE LINKER:--wrap=net_connect)
