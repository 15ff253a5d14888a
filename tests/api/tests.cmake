# The public API as processes and as threads, in every way ranks can be connected. `api` uses the library
# as users do; `api_objects` is linked with the objects, for the proof kind of memory and for sanitizers
# that want to see everything.
set(api_sources api_main.c batch.c buffer.c data.c endings.c errors.c
	messages.c own_ops.c part.c part_issue.c passes.c programs.c split.c survivors.c)
list(TRANSFORM api_sources PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/api/)

add_executable(api ${api_sources})
target_link_libraries(api PRIVATE tutti_warnings tutti Threads::Threads m)
tutti_test_helpers(memory)
add_executable(api_objects ${api_sources})
target_compile_definitions(api_objects PRIVATE API_PROOF)
target_link_libraries(api_objects PRIVATE tutti_objects tests_memory)
add_executable(ranks api/ranks_main.c)
target_link_libraries(ranks PRIVATE tutti_warnings)
add_executable(hash_main api/hash_main.c)
target_link_libraries(hash_main PRIVATE tutti_warnings tutti m)
add_dependencies(hash_main ranks)
add_executable(survive_main api/survive_main.c)
target_link_libraries(survive_main PRIVATE tutti_warnings tutti Threads::Threads)
add_executable(grow_main api/grow_main.c)
target_link_libraries(grow_main PRIVATE tutti_warnings tutti Threads::Threads)

# What only works values out, in memory of one thread: ThreadSanitizer would look at every element for nothing.
if(CMAKE_C_FLAGS MATCHES "-fsanitize=thread")
	set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/api/data.c memory/twin.c
		PROPERTIES COMPILE_OPTIONS "-fno-sanitize=thread;-O2")
endif()

# api_test(NAME N [PROOF] [RANKS option...] [ARGUMENTS argument...]): N processes.
function(api_test name n)
	cmake_parse_arguments(PARSE_ARGV 2 api "PROOF" "" "RANKS;ARGUMENTS")
	set(program api)
	if(api_PROOF)
		set(program api_objects)
		list(PREPEND api_ARGUMENTS --proof)
	endif()
	math(EXPR deadline "${test_timeout} - 10")
	string(LENGTH "${name}" seed)
	tutti_test_skip(skip ${api_RANKS})
	add_test(NAME api/${name}_${n} COMMAND ${skip} $<TARGET_FILE:ranks> -n ${n} -t ${deadline}
		-e SEED=${n}${seed} ${api_RANKS} $<TARGET_FILE:${program}> ${api_ARGUMENTS})
	tutti_test_properties(api/${name}_${n} api)
endfunction()

# api_threads_test(NAME N [ENVIRONMENT variable=value...] [ARGUMENTS argument...]): N threads of one process,
# in which sanitizers see all ranks. ThreadSanitizer takes half a minute for large buffers: there they are a test of
# their own, threads_NAME_large_N.
function(api_threads_test name n)
	cmake_parse_arguments(PARSE_ARGV 2 api "" "" "ENVIRONMENT;ARGUMENTS")
	if(CMAKE_C_FLAGS MATCHES "-fsanitize=thread" AND "large" IN_LIST api_ARGUMENTS AND "small" IN_LIST api_ARGUMENTS)
		set(large ${api_ARGUMENTS})
		list(REMOVE_ITEM large ${everything})
		api_threads_test(${name}_large ${n} ENVIRONMENT ${api_ENVIRONMENT} ARGUMENTS ${large} large)
		list(REMOVE_ITEM api_ARGUMENTS large)
	endif()
	tutti_test_skip(skip ${api_ENVIRONMENT})
	add_test(NAME api/threads_${name}_${n} COMMAND ${skip} env SEED=${n}7 ${api_ENVIRONMENT}
		$<TARGET_FILE:api_objects> --threads ${n} ${api_ARGUMENTS})
	tutti_test_properties(api/threads_${name}_${n} api threads)
endfunction()

set(shm TUTTI_WINDOW=0 TUTTI_TRANSPORTS=shm)
set(tcp TUTTI_WINDOW=0 TUTTI_TRANSPORTS=tcp)
set(shm_ranks -e TUTTI_WINDOW=0 -e TUTTI_TRANSPORTS=shm)
set(tcp_ranks -e TUTTI_WINDOW=0 -e TUTTI_TRANSPORTS=tcp)
set(tls_ranks ${tcp_ranks} -e TUTTI_TLS=1)
set(everything world errors survivors split messages small large bits flight)

foreach(n 1 2 3 4 5 8)
	api_test(default ${n} ARGUMENTS ${everything})
	api_test(shm ${n} RANKS ${shm_ranks} ARGUMENTS ${everything})
	api_test(tcp ${n} RANKS ${tcp_ranks} ARGUMENTS ${everything})
endforeach()
foreach(n 2 3 4 5 8)
	api_test(two_machines ${n} RANKS -2 ARGUMENTS ${everything})
endforeach()

# Each algorithm by force, on what it can do. Those that follow the fixed tree are held to its bits.
set(forced --forced --quick small large bits)
set(ring all_reduce=ring,reduce_scatter=ring,all_gather=ring,broadcast=ring)
set(doubling all_reduce=doubling,broadcast=doubling,barrier=doubling)
set(direct all_reduce=direct,reduce_scatter=direct,all_gather=direct,broadcast=direct)
set(window all_reduce=window,reduce_scatter=window,all_gather=window,broadcast=window,barrier=window)
foreach(n 2 3 5 8)
	api_test(ring ${n} RANKS ${shm_ranks} -e TUTTI_ALGO=${ring} ARGUMENTS ${forced})
	api_test(doubling ${n} RANKS ${tcp_ranks} -e TUTTI_ALGO=${doubling} ARGUMENTS ${forced})
	api_test(direct ${n} RANKS ${shm_ranks} -e TUTTI_ALGO=${direct} ARGUMENTS --exact ${forced})
	api_test(window ${n} RANKS -e TUTTI_ALGO=${window}
		ARGUMENTS --exact ${forced} zero_copy)
endforeach()

foreach(ending leave death late differ abort)
	foreach(n 2 3 4)
		api_test(${ending} ${n} ARGUMENTS ${ending})
		api_test(${ending}_shm ${n} RANKS ${shm_ranks} ARGUMENTS ${ending})
		api_test(${ending}_tcp ${n} RANKS ${tcp_ranks} ARGUMENTS ${ending})
	endforeach()
	api_test(${ending}_two_machines 4 RANKS -2 ARGUMENTS ${ending})
endforeach()

foreach(n 2 3 4 6)
	api_test(split_death ${n} ARGUMENTS split_death)
	api_test(split_death_tcp ${n} RANKS ${tcp_ranks} ARGUMENTS split_death)
endforeach()
api_test(split_death_two_machines 5 RANKS -2 ARGUMENTS split_death)
foreach(n 1 2 3 4 7)
	api_test(split_nodes ${n} RANKS -2 ARGUMENTS split_nodes)
endforeach()

api_test(gone_peer 4 ARGUMENTS gone_peer)
api_test(gone_peer_shm 4 RANKS ${shm_ranks} ARGUMENTS gone_peer)
api_test(gone_peer_tcp 4 RANKS ${tcp_ranks} ARGUMENTS gone_peer)
api_test(gone_peer_two_machines 5 RANKS -2 ARGUMENTS gone_peer)

# Random programs of everything; script/soak runs longer ones, with new seeds.
foreach(n 1 2 4 7)
	api_test(programs ${n} ARGUMENTS programs)
endforeach()
foreach(n 2 5)
	api_test(programs_shm ${n} RANKS ${shm_ranks} ARGUMENTS programs)
endforeach()
foreach(n 3 4)
	api_test(programs_tcp ${n} RANKS ${tcp_ranks} ARGUMENTS programs)
	api_test(programs_tcp_summed ${n} RANKS ${tcp_ranks} -e TUTTI_CHECKSUM=1 ARGUMENTS programs)
endforeach()
foreach(n 2 3 5)
	api_test(tls ${n} RANKS ${tls_ranks} ARGUMENTS ${everything})
	api_test(programs_tls ${n} RANKS ${tls_ranks} ARGUMENTS programs)
endforeach()
api_test(programs_tls_summed 4 RANKS ${tls_ranks} -e TUTTI_CHECKSUM=1 ARGUMENTS programs)
api_test(tls_two_machines 4 RANKS -2 -e TUTTI_TLS=1 ARGUMENTS ${everything})
foreach(ending leave death late differ abort split_death gone_peer)
	api_test(${ending}_tls 3 RANKS ${tls_ranks} ARGUMENTS ${ending})
endforeach()
api_threads_test(tls 3 ENVIRONMENT ${tcp} TUTTI_TLS=1 ARGUMENTS --quick ${everything})
api_threads_test(programs_tls 4 ENVIRONMENT ${tcp} TUTTI_TLS=1 ARGUMENTS programs)
# These seeds have found children that kept their parent's nodes.
api_test(programs_2_nodes 8 RANKS -m 2 -e SEED=12 ARGUMENTS programs)
api_test(programs_3_nodes 6 RANKS -m 3 -e SEED=13 ARGUMENTS programs)
# Two ranks, and children of two, read each other's memory.
foreach(n 2 4)
	api_test(programs_read ${n} RANKS -e TUTTI_READ=1 ARGUMENTS programs)
endforeach()
api_test(read 2 RANKS -e TUTTI_READ=1 ARGUMENTS ${everything})
foreach(ending leave death late differ abort)
	api_test(${ending}_read 2 RANKS -e TUTTI_READ=1 ARGUMENTS ${ending})
endforeach()
api_threads_test(programs_read 2 ENVIRONMENT TUTTI_READ=1 ARGUMENTS programs)
set(logarithmic all_to_all=bruck,scatter=knomial,gather=knomial,reduce=knomial,broadcast=knomial)
api_test(programs_logarithmic 7 RANKS ${tcp_ranks} -e TUTTI_ALGO=${logarithmic}
	ARGUMENTS --forced programs)
set(pipelined all_reduce=rings,reduce_scatter=rings,all_gather=rings,broadcast=tree,reduce=tree)
set(balanced all_reduce=circulant,reduce_scatter=circulant,all_gather=circulant,broadcast=spread,reduce=ring)
set(lanes all_reduce=two_level,reduce_scatter=two_level,all_gather=two_level,broadcast=two_level)
api_test(programs_pipelined 5 RANKS ${tcp_ranks} -e TUTTI_ALGO=${pipelined},all_to_all=pairwise
	ARGUMENTS --forced programs)
api_test(programs_balanced 6 RANKS ${shm_ranks} -e TUTTI_ALGO=${balanced},all_to_all=direct
	ARGUMENTS --forced programs)
api_test(programs_tree 7 RANKS ${shm_ranks} -e TUTTI_ALGO=all_reduce=tree,broadcast=ring,reduce=direct
	ARGUMENTS --forced programs)
api_test(programs_lanes_2_nodes 8 RANKS -m 2 -e TUTTI_ALGO=${lanes} ARGUMENTS --forced programs)
api_test(programs_lanes_3_nodes 6 RANKS -m 3 -e TUTTI_ALGO=${lanes} ARGUMENTS --forced programs)
api_threads_test(programs 3 ARGUMENTS programs)
api_threads_test(programs 8 ARGUMENTS programs)
api_threads_test(programs_shm 4 ENVIRONMENT ${shm} ARGUMENTS programs)
api_threads_test(programs_tcp 6 ENVIRONMENT ${tcp} ARGUMENTS programs)

# With every set of instructions that the CPU has; a number beyond those is another one of them.
foreach(set 0 1 2 3 4)
	api_test(programs_simd_${set} 3 ARGUMENTS --simd ${set} programs)
	api_threads_test(bits_simd_${set} 4 ARGUMENTS --simd ${set} --quick small bits flight)
endforeach()
api_test(programs_simd_mixed 5 ARGUMENTS --simd mixed programs)
api_test(programs_simd_mixed_tcp 4 RANKS ${tcp_ranks} ARGUMENTS --simd mixed programs)

# Memory that the CPU may not touch, on some of the ranks in some of the calls.
api_test(proof 1 PROOF ARGUMENTS --quick messages small large bits flight)
api_test(proof 4 PROOF ARGUMENTS --quick messages small large bits flight)
api_test(proof_shm 3 PROOF RANKS ${shm_ranks} ARGUMENTS --quick messages small large bits flight)
api_test(proof_tcp 4 PROOF RANKS ${tcp_ranks} ARGUMENTS --quick messages small large bits flight)
api_test(proof_two_machines 5 PROOF RANKS -2 ARGUMENTS --quick messages small large bits flight)

foreach(n 1 2 4 8)
	api_threads_test(default ${n} ARGUMENTS ${everything})
endforeach()
api_threads_test(shm 3 ENVIRONMENT ${shm} ARGUMENTS --quick ${everything})
api_threads_test(tcp 3 ENVIRONMENT ${tcp} ARGUMENTS --quick ${everything})
api_threads_test(proof 2 ARGUMENTS --proof --quick ${everything})
api_threads_test(proof_tcp 3 ENVIRONMENT ${tcp} ARGUMENTS --proof --quick ${everything})
api_threads_test(proof_shm 4 ENVIRONMENT ${shm} ARGUMENTS --proof --quick ${everything})

# The same bits by every path.
foreach(n 2 3 4 5 7 8)
	add_test(NAME api/hash_${n} COMMAND hash_main ${n})
	tutti_test_properties(api/hash_${n} api)
endforeach()

# Ranks are killed and stopped, and the others go on. Deaths are rounds of one job, until one rank is left; other seeds
# are script/soak's.
function(api_survive_test name n seed)
	cmake_parse_arguments(PARSE_ARGV 3 api "" "" "RANKS;ARGUMENTS")
	math(EXPR deadline "${test_timeout} - 10")
	tutti_test_skip(skip ${api_RANKS})
	add_test(NAME api/survive_${name}_${n}_${seed} COMMAND ${skip} $<TARGET_FILE:ranks> -k -n ${n}
		-t ${deadline} -e SEED=${seed} ${api_RANKS} $<TARGET_FILE:survive_main> ${api_ARGUMENTS})
	tutti_test_properties(api/survive_${name}_${n}_${seed} api)
endfunction()

foreach(n 2 3 4 6 8)
	api_survive_test(kills ${n} 1 ARGUMENTS kills)
	api_survive_test(kills_tcp ${n} 2 RANKS ${tcp_ranks} ARGUMENTS kills)
	api_survive_test(agree ${n} 1 ARGUMENTS agree)
endforeach()
foreach(seed 3 4)
	api_survive_test(kills 5 ${seed} ARGUMENTS kills)
	api_survive_test(kills_shm 5 ${seed} RANKS ${shm_ranks} ARGUMENTS kills)
	api_survive_test(kills_two_machines 6 ${seed} RANKS -2 ARGUMENTS kills)
	api_survive_test(agree_tcp 5 ${seed} RANKS ${tcp_ranks} ARGUMENTS agree)
endforeach()
api_survive_test(kills_three_machines 7 5 RANKS -m 3 ARGUMENTS kills)
api_survive_test(agree_shm 4 5 RANKS ${shm_ranks} ARGUMENTS agree)
api_survive_test(kills_tls 4 6 RANKS ${tls_ranks} ARGUMENTS kills)
api_survive_test(agree_tls 3 6 RANKS ${tls_ranks} ARGUMENTS agree)
foreach(n 2 4)
	api_survive_test(memory ${n} 1 ARGUMENTS memory)
	api_survive_test(memory_tcp ${n} 2 RANKS ${tcp_ranks} ARGUMENTS memory)
endforeach()
set(short_timeout -e TUTTI_TIMEOUT_MS=4000)
foreach(n 2 3 5)
	api_survive_test(stop ${n} 1 RANKS ${short_timeout} ARGUMENTS stop 1)
endforeach()
api_survive_test(stop_kill 3 1 RANKS ${short_timeout} ARGUMENTS stop 1 1)
api_survive_test(stop_kill_tcp 5 1 RANKS ${short_timeout} ${tcp_ranks} ARGUMENTS stop 2 1)
api_survive_test(stop_two 4 1 RANKS ${short_timeout} ARGUMENTS stop 2)
api_survive_test(stop_tcp 3 1 RANKS ${short_timeout} ${tcp_ranks} ARGUMENTS stop 1)

# New ranks join those who are there: in the place of ones that are killed, over and over, and without a death.
function(api_grow_test name n seed)
	cmake_parse_arguments(PARSE_ARGV 3 api "" "" "RANKS;ARGUMENTS")
	math(EXPR deadline "${test_timeout} - 10")
	add_test(NAME api/grow_${name}_${n}_${seed} COMMAND ranks -n ${n} -t ${deadline} -e SEED=${seed}
		-e TUTTI_TIMEOUT_MS=30000 ${api_RANKS} $<TARGET_FILE:grow_main> ${api_ARGUMENTS})
	tutti_test_properties(api/grow_${name}_${n}_${seed} api)
endfunction()

set(again -k -r 100000)
foreach(n 2 3 4 8)
	api_grow_test(kills ${n} 1 RANKS ${again} ARGUMENTS kills)
	api_grow_test(kills_tcp ${n} 2 RANKS ${again} ${tcp_ranks} ARGUMENTS kills)
endforeach()
api_grow_test(kills_shm 4 3 RANKS ${again} ${shm_ranks} ARGUMENTS kills)
api_grow_test(kills_two_machines 6 4 RANKS ${again} -2 ARGUMENTS kills)
foreach(n 2 3 5)
	api_grow_test(more ${n} 1 ARGUMENTS more)
	api_grow_test(more_tcp ${n} 1 RANKS ${tcp_ranks} ARGUMENTS more)
endforeach()
foreach(n 1 2 4)
	api_grow_test(absent ${n} 1 ARGUMENTS absent)
	api_grow_test(absent_tcp ${n} 1 RANKS ${tcp_ranks} ARGUMENTS absent)
endforeach()
api_grow_test(secret 3 1 ARGUMENTS secret)
api_grow_test(left 3 1 RANKS -k -e TUTTI_TIMEOUT_MS=3000 ARGUMENTS left)

# Large buffers on more than two ranks, all paths, and ranks that are given up after seconds.
tutti_label_tests(slow "^api/(threads_)?(default|shm|tcp|tls|two_machines|ring|doubling|direct|window|proof)[a-z_]*_[3-8]$")
tutti_label_tests(slow "^api/hash_")
tutti_label_tests(slow "^api/(survive_stop|grow_left)_")
# Under ASan, of the processes (all but threads) those whose first number is 1, 4, 6, 7 or 8 are left out: ranks, also of
# random programs and of jobs of which ranks die, and two sets of instructions. Of the threads 2, 3 and 8 are enough.
tutti_label_tests(no_asan "^api/([^t]|t[cwl])[a-z_]*_[14678]($|_)")
tutti_label_tests(no_asan "^api/threads_default_[14]$")
# And with 2, 4 and 5 ranks the ways by which they are connected, and every algorithm by force; with 3 what waits for a
# stopped rank.
tutti_label_tests(no_asan "^api/(shm|tcp|tls|two_machines|doubling|direct|hash)_2$")
tutti_label_tests(no_asan "^api/survive_stop_(tcp_)?3")
tutti_label_tests(no_asan
	"^api/(default|shm|tcp|tls|two_machines|ring|doubling|direct|window|hash|tls_two_machines|survive_stop)_[45]($|_)")
# Under TSan large buffers take half a minute each: once by window, shm and tcp is enough.
if(CMAKE_C_FLAGS MATCHES "-fsanitize=thread")
	tutti_label_tests(no_tsan "^api/threads_(default_large_[148]|proof[a-z_]*_large|tls_large)")
endif()
