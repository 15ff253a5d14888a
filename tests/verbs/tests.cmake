# What runs in the guest with programs of other folders: collectives over real RDMA devices, in processes.
function(verbs_test name n)
	add_test(NAME verbs/${name}_${n} COMMAND $<TARGET_FILE:ranks> -n ${n} -t 200 -e SEED=${n} -e TUTTI_WINDOW=0
		-e TUTTI_TRANSPORTS=verbs ${ARGN})
	tutti_test_properties(verbs/${name}_${n} verbs guest)
endfunction()

foreach(n 2 3 4)
	verbs_test(api ${n} $<TARGET_FILE:api> world errors survivors split messages small large bits flight)
	verbs_test(programs ${n} $<TARGET_FILE:api> programs)
	foreach(ending leave death late differ abort)
		verbs_test(${ending} ${n} $<TARGET_FILE:api> ${ending})
	endforeach()
endforeach()
verbs_test(split_death 3 $<TARGET_FILE:api> split_death)
verbs_test(gone_peer 4 $<TARGET_FILE:api> gone_peer)
