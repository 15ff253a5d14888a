# What goes into sockets goes through capture.c.
foreach(test test_capture test_sessions test_tls_meeting)
	target_link_options(${test} PRIVATE -Wl,--wrap=send -Wl,--wrap=sendmsg)
endforeach()
target_link_libraries(test_sessions PRIVATE tests_transport)

# Resets in a network of their own, with TLS: between endpoints, and between ranks.
foreach(test reconnect idle_endpoint)
	add_test(NAME transport/tcp/test_tcp_${test}_tls COMMAND test_tcp_${test} --tls)
	tutti_test_properties(transport/tcp/test_tcp_${test}_tls transport/tcp)
	tutti_test_marks(transport/tcp/test_tcp_${test}_tls transport/tcp/test_tcp_${test}.c)
endforeach()
foreach(test collectives idle_rank)
	tutti_test_skip(skip TUTTI_TLS=1)
	add_test(NAME transport/tcp/test_tcp_${test}_tls COMMAND ${skip} env TUTTI_TLS=1 $<TARGET_FILE:test_tcp_${test}>)
	tutti_test_properties(transport/tcp/test_tcp_${test}_tls transport/tcp)
	tutti_test_marks(transport/tcp/test_tcp_${test}_tls transport/tcp/test_tcp_${test}.c)
endforeach()
