# tutti_program(NAME [INSTALL] [LIBRARY name] source...): a program that uses a library (default: tutti) as its users do. It sees
# <tutti/...> and its own folder, and none of our internal headers.
function(tutti_program name)
	cmake_parse_arguments(PARSE_ARGV 1 program INSTALL LIBRARY "")
	add_executable(${name} ${program_UNPARSED_ARGUMENTS})
	if(NOT program_LIBRARY)
		set(program_LIBRARY tutti)
	endif()
	target_link_libraries(${name} PRIVATE tutti_warnings ${program_LIBRARY} m)
	# Not linked anew with the library, which changes with every commit (revision.cmake).
	set_target_properties(${name} PROPERTIES LINK_DEPENDS_NO_SHARED ON)
	# Found beside the library, wherever the tree is installed.
	set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
	if(program_INSTALL)
		set_property(GLOBAL APPEND PROPERTY TUTTI_INSTALLED_PROGRAMS ${name})
	endif()
endfunction()

# tutti_not_for_users(TARGET...): programs that are not installed. Without the tests they are built when asked for, such as
# `ninja limits`.
function(tutti_not_for_users)
	if(NOT TUTTI_TESTS)
		set_target_properties(${ARGN} PROPERTIES EXCLUDE_FROM_ALL ON)
	endif()
endfunction()
