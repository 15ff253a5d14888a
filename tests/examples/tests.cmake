# The examples of RPC, of which ranks die, or wait for the others (dying_main.c).
foreach(name parameter_server inference_server)
	file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/${name}/*.c)
	add_executable(dying_${name} ${CMAKE_CURRENT_LIST_DIR}/dying_main.c ${files})
	target_link_libraries(dying_${name} PRIVATE tutti_warnings tutti m)
	foreach(call rpc_call_async rpc_reply_end)
		target_link_options(dying_${name} PRIVATE LINKER:--wrap=tutti_${call})
	endforeach()
endforeach()
