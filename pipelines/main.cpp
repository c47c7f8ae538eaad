#include "pipelines/cli.h"

int main(int argc, char** argv) { return loom::run_program(argc, argv); }
