# What runs in the guest with programs of other folders: collectives over real RDMA devices, in processes. What takes seconds
# there takes minutes on a loaded machine, and no bound is stretched for it: the guest does not see that load.
function(verbs_test name n)
	add_test(NAME verbs/${name}_${n} COMMAND $<TARGET_FILE:ranks> -n ${n} -t 800 -e SEED=${n} -e TUTTI_WINDOW=0
		-e TUTTI_TRANSPORTS=verbs ${ARGN})
	tutti_test_properties(verbs/${name}_${n} verbs guest)
endfunction()

set(quick)
foreach(n 2 3 4)
	verbs_test(api ${n} $<TARGET_FILE:api> ${quick} world errors survivors split messages small large bits flight)
	verbs_test(programs ${n} $<TARGET_FILE:api> programs)
	foreach(ending leave death late differ abort)
		verbs_test(${ending} ${n} $<TARGET_FILE:api> ${ending})
	endforeach()
	set(quick --quick) # of the others a part is drawn; the fake has all of it below
endforeach()
verbs_test(split_death 3 $<TARGET_FILE:api> split_death)
verbs_test(gone_peer 4 $<TARGET_FILE:api> gone_peer)
# Ranks are killed; the others shrink, and where new ones are started in their place they grow.
foreach(n 2 3 4)
	verbs_test(survive_kills ${n} -k $<TARGET_FILE:survive_main> kills)
endforeach()
verbs_test(survive_memory 3 -k $<TARGET_FILE:survive_main> memory)
verbs_test(grow_kills 2 -k -r 100 -d 300000 $<TARGET_FILE:grow_main> kills 2)
verbs_test(grow_kills 3 -k -r 100 -d 300000 $<TARGET_FILE:grow_main> kills 2)
verbs_test(grow_recover 4 -k -r 100 -d 300000 -e TUTTI_MAX_RESTARTS=1 $<TARGET_FILE:grow_main> recover 1)

# Several jobs one after the other, each with a bound of its own.
set_tests_properties(verbs/test_guest_devices verbs/test_guest_failover verbs/test_guest_info verbs/test_lossy PROPERTIES TIMEOUT 3600)

# script/test boots a guest of its own for these, whose sides have two devices.
tutti_label_tests(two_devices "^verbs/test_guest_failover$")

# The same program over the fake of tests/verbs/fake, its ranks as threads: everywhere, and under sanitizers.
if(HAS_VERBS)
	add_executable(api_fake ${api_sources} verbs/fake_ranks_main.c)
	target_compile_definitions(api_fake PRIVATE API_PROOF)
	target_link_libraries(api_fake PRIVATE tutti_train_with_objects tests_core_memory fake_verbs)
	# And agree, shrink and grow that end by an abort.
	add_executable(abort_recovery_fake collectives/control/test_abort_recovery.c verbs/fake_ranks_main.c)
	target_compile_definitions(abort_recovery_fake PRIVATE RECOVERS_OVER_VERBS)
	target_link_libraries(abort_recovery_fake PRIVATE tutti_train_with_objects PkgConfig::CMOCKA fake_verbs)
	target_link_options(abort_recovery_fake PRIVATE LINKER:--wrap=agreement_init)
	add_test(NAME verbs/fake_abort_recovery COMMAND abort_recovery_fake)
	tutti_test_properties(verbs/fake_abort_recovery verbs threads slow)
	set(long)
	if(NOT CMAKE_C_FLAGS MATCHES "-fsanitize")
		set(long large flight)
	endif()
	foreach(n 2 3 4)
		foreach(form writes frames)
			add_test(NAME verbs/fake_${form}_${n} COMMAND env SEED=${n}7 FAKE_FORM=${form} TUTTI_WINDOW=0
				TUTTI_TRANSPORTS=verbs $<TARGET_FILE:api_fake> --threads ${n}
				world errors survivors split messages small bits programs ${long})
			tutti_test_properties(verbs/fake_${form}_${n} verbs threads)
		endforeach()
	endforeach()
	# The same on memory that the CPU may not touch: the devices reach it by dma-bufs.
	foreach(n 2 3 4)
		add_test(NAME verbs/fake_proof_${n} COMMAND env SEED=${n}7 TUTTI_WINDOW=0 TUTTI_TRANSPORTS=verbs
			$<TARGET_FILE:api_fake> --threads ${n} --proof --quick
			world errors survivors split messages small bits programs ${long})
		tutti_test_properties(verbs/fake_proof_${n} verbs threads)
	endforeach()
	tutti_label_tests(no_tsan "^verbs/fake_proof_[24]$")
	tutti_label_tests(no_asan "^verbs/fake_proof_[23]$")
	# Under sanitizers each form once with more than two ranks; under ASan also with two.
	tutti_label_tests(no_tsan "^verbs/fake_(writes_[23]|frames_[24])$")
	tutti_label_tests(no_asan "^verbs/fake_(writes_3|frames_4)$")
endif()
