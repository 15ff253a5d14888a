# A libibverbs of the tests: what dlopen("libibverbs.so.1") finds in programs that are linked with it. The version of its
# symbols is its own, so that providers and UCX, which need the real one's, do not load beside it.
if(HAS_VERBS)
	file(GLOB fake_files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/verbs/fake/*.c)
	add_library(fake_verbs SHARED ${fake_files})
	target_link_libraries(fake_verbs PRIVATE tutti_flags Threads::Threads)
	target_link_options(fake_verbs PRIVATE
		LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/verbs/fake/fake.map)
	set_target_properties(fake_verbs PROPERTIES C_VISIBILITY_PRESET default OUTPUT_NAME ibverbs VERSION 1 SOVERSION 1
		LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fake_verbs)
	foreach(source IN LISTS sources)
		if(source MATCHES "^transport/verbs/fake/|^verbs/test_fake_")
			get_filename_component(name ${source} NAME_WE)
			target_link_libraries(${name} PRIVATE fake_verbs)
		endif()
	endforeach()
endif()
