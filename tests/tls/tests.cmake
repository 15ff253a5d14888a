# What goes into sockets goes through overheard.c.
foreach(test test_overheard test_sessions test_tls_meeting)
	target_link_options(${test} PRIVATE -Wl,--wrap=send -Wl,--wrap=sendmsg)
endforeach()
target_link_libraries(test_sessions PRIVATE tests_transport)

# Resets in a network of their own, with TLS: between endpoints, and between ranks.
foreach(test reconnect idle_endpoint)
	add_test(NAME transport/test_tcp_${test}_tls COMMAND test_tcp_${test} --tls)
	tutti_test_properties(transport/test_tcp_${test}_tls transport)
	tutti_test_marks(transport/test_tcp_${test}_tls transport/test_tcp_${test}.c)
endforeach()
foreach(test collectives idle_rank)
	tutti_test_skip(skip TUTTI_TLS=1)
	add_test(NAME transport/test_tcp_${test}_tls COMMAND ${skip} env TUTTI_TLS=1 $<TARGET_FILE:test_tcp_${test}>)
	tutti_test_properties(transport/test_tcp_${test}_tls transport)
	tutti_test_marks(transport/test_tcp_${test}_tls transport/test_tcp_${test}.c)
endforeach()
