# A message that is lost with its connection, and one that breaks before the other rank comes.
target_link_options(test_consensus PRIVATE LINKER:--wrap=consensus_link_done LINKER:--wrap=consensus_link_open)
# It counts how often a thread that aborts sleeps.
target_link_options(test_abort PRIVATE LINKER:--wrap=poll)
# A rank that has no memory for an agreement.
target_link_options(test_abort_recovery PRIVATE LINKER:--wrap=agreement_init)
