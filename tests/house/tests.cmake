# Where a call goes: the library from the API to the wire, compiled so that each function says when it is entered. Kernels,
# joining and training are not on this way and are taken as they are.
if(NOT CMAKE_C_FLAGS MATCHES "-fsanitize")
	set(spine_sources ${TUTTI_SOURCES})
	set(not_on_the_spine "(train|rendezvous|memory/reduce)")
	list(FILTER spine_sources EXCLUDE REGEX "^${PROJECT_SOURCE_DIR}/${not_on_the_spine}")
	add_library(spine_objects OBJECT ${spine_sources})
	target_compile_options(spine_objects PRIVATE -fexceptions -O0 -g1 -finstrument-functions)
	target_compile_definitions(spine_objects PRIVATE $<TARGET_PROPERTY:tutti_objects,INTERFACE_COMPILE_DEFINITIONS>)
	target_include_directories(spine_objects PRIVATE ${OPENSSL_INCLUDE_DIRS})
	target_link_libraries(spine_objects PRIVATE tutti_flags Threads::Threads PkgConfig::SODIUM)
	add_executable(spine house/spine_main.c $<TARGET_OBJECTS:spine_objects>
		$<FILTER:$<TARGET_OBJECTS:tutti_objects>,INCLUDE,[.]dir/[.]/${not_on_the_spine}>)
	target_link_libraries(spine PRIVATE $<GENEX_EVAL:$<TARGET_PROPERTY:tutti_objects,INTERFACE_LINK_LIBRARIES>>)
	target_link_options(spine PRIVATE -no-pie -Wl,--wrap=memcpy -Wl,--wrap=send -Wl,--wrap=sendmsg)
endif()
