# Our programs' command lines, and stdout. On the linker's line it stands before a library that has core/words, too, and behind
# objects that have them.
add_library(program_parts STATIC EXCLUDE_FROM_ALL core/program/line.c core/program/output.c core/words/nearest.c core/words/number.c)
target_compile_definitions(program_parts PRIVATE TUTTI_VERSION="${PROJECT_VERSION}")
target_include_directories(program_parts PUBLIC ${PROJECT_SOURCE_DIR})
target_link_libraries(program_parts PRIVATE tutti_warnings)
# Else a library would take these functions for its own, of the same names.
target_link_options(program_parts INTERFACE -Wl,--exclude-libs,libprogram_parts.a)

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
