# A rank that dies at the question that it is to answer.
target_link_options(test_grow_reports PRIVATE LINKER:--wrap=comm_ask)
# A child whose other ranks start when one has given up.
target_link_options(test_split_connect PRIVATE LINKER:--wrap=comm_start LINKER:--wrap=comm_connect
	LINKER:--wrap=long_wait_is_due LINKER:--wrap=long_wait_say)
# Ranks that wait for one that makes another call; tests/core/join/test_long_waits.sh runs it.
add_executable(absent_main collectives/comm/absent_main.c)
target_link_libraries(absent_main PRIVATE tutti_warnings tutti)
