# Collectives over UCX, in processes of this machine: over its tcp, and over its shared memory.
if(NOT HAS_UCX)
	return()
endif()

# ucx_test(NAME N TLS argument...): where libucp is not installed it is skipped, and counted.
function(ucx_test name n tls)
	add_test(NAME ucx/${name}_${tls}_${n} COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/ucx/with_libucp $<TARGET_FILE:test_ucx_status>
		$<TARGET_FILE:ranks> -n ${n} -t 200 -e SEED=${n} -e TUTTI_WINDOW=0 -e TUTTI_TRANSPORTS=ucx -e UCX_TLS=${tls},self ${ARGN})
	tutti_test_properties(ucx/${name}_${tls}_${n} ucx)
endfunction()
