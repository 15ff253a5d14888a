# Manual pages of all public functions and installed programs, written by manual.py from the headers and from --help. And
# completion of the programs' options by bash, which asks --help, too.
find_program(TUTTI_PYTHON NAMES python3)
get_property(scripts GLOBAL PROPERTY TUTTI_INSTALLED_SCRIPTS)
get_property(script_sources GLOBAL PROPERTY TUTTI_SOURCES_OF_SCRIPTS)
set(manual_dir ${CMAKE_CURRENT_BINARY_DIR}/man)
if(TUTTI_PYTHON AND NOT CMAKE_CROSSCOMPILING)
	list(TRANSFORM programs REPLACE "(.+)" "$<TARGET_FILE:\\1>" OUTPUT_VARIABLE program_files)
	file(GLOB headers CONFIGURE_DEPENDS include/tutti/*.h)
	add_custom_command(OUTPUT ${manual_dir}/stamp
		COMMAND ${TUTTI_PYTHON} ${PROJECT_SOURCE_DIR}/cmake/manual.py ${PROJECT_VERSION} ${manual_dir} ${headers}
			-- ${program_files} ${scripts}
		COMMAND ${CMAKE_COMMAND} -E touch ${manual_dir}/stamp
		DEPENDS cmake/manual.py ${headers} ${programs} ${scripts} ${script_sources}
		COMMENT "Writing manual pages" VERBATIM)
	add_custom_target(tutti_manual ALL DEPENDS ${manual_dir}/stamp)
	install(DIRECTORY ${manual_dir}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT tools)
	install(DIRECTORY ${manual_dir}/man3 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT dev)
else()
	message(STATUS "no manual pages: there is no python3, or this is a cross build")
endif()

set(completion ${CMAKE_CURRENT_BINARY_DIR}/completion)
list(TRANSFORM scripts REPLACE "^.*/" "" OUTPUT_VARIABLE names)
foreach(program IN LISTS programs names)
	file(CONFIGURE OUTPUT ${completion}/${program} @ONLY CONTENT "# bash-completion's own, which reads --help.
complete -F _longopt @program@
")
endforeach()
if(programs)
	install(DIRECTORY ${completion}/ DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT tools)
endif()
