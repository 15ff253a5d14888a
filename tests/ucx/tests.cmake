# Collectives over UCX, in processes of this machine: over its tcp and over its shared memory. Where libucp is not
# installed they are skipped, and counted.
if(NOT HAS_UCX)
	return()
endif()
set(with_libucp [=[/sbin/ldconfig -p | grep -q "libucp\.so\.0 " || { echo "libucp.so.0 is not installed (Debian: libucx0)"; exit 77; }; exec "$@"]=])

function(ucx_test name n wire)
	add_test(NAME ucx/${name}_${wire}_${n} COMMAND sh -c "${with_libucp}" -- $<TARGET_FILE:ranks> -n ${n} -t 200
		-e SEED=${n} -e TUTTI_WINDOW=0 -e TUTTI_TRANSPORTS=ucx -e UCX_TLS=${wire},self ${ARGN})
	tutti_test_properties(ucx/${name}_${wire}_${n} ucx)
	if(wire STREQUAL sm) # one at a time: a container's /dev/shm has 64 MB
		set_property(TEST ucx/${name}_sm_${n} PROPERTY RESOURCE_LOCK ucx_sm)
	endif()
endfunction()

foreach(n 2 3 4)
	ucx_test(api ${n} tcp $<TARGET_FILE:api> --quick world errors survivors split messages small large bits flight)
	ucx_test(programs ${n} tcp $<TARGET_FILE:api> programs)
	ucx_test(leave ${n} tcp $<TARGET_FILE:api> leave)
	ucx_test(death ${n} tcp $<TARGET_FILE:api> death)
endforeach()
ucx_test(api 2 sm $<TARGET_FILE:api> --quick world errors survivors split messages small large bits flight)
ucx_test(programs 3 sm $<TARGET_FILE:api> programs)
ucx_test(death 3 sm $<TARGET_FILE:api> death)
foreach(ending late differ abort split_death)
	ucx_test(${ending} 3 tcp $<TARGET_FILE:api> ${ending})
endforeach()
ucx_test(gone_peer 4 tcp $<TARGET_FILE:api> gone_peer)
ucx_test(gone_peer 4 sm $<TARGET_FILE:api> gone_peer)
ucx_test(survive_kills 4 tcp -k $<TARGET_FILE:survive_main> kills)
ucx_test(survive_memory 3 sm -k $<TARGET_FILE:survive_main> memory)
ucx_test(grow_kills 3 tcp -k -r 100000 -d 30000 $<TARGET_FILE:grow_main> kills)
ucx_test(grow_recover 4 sm -k -r 100000 -d 30000 -e TUTTI_MAX_RESTARTS=1 $<TARGET_FILE:grow_main> recover)
