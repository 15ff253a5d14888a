# It loads the example of a transport.
add_dependencies(test_p2p_threads mailbox_plugin)
