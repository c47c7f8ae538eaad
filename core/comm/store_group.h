#pragma once
// The store as c10d knows it, for the files that speak to c10d.
#include <c10/util/intrusive_ptr.h>

#include "core/comm/store.h"

namespace c10d {
class Store;
}

namespace loom {

// `prefix` keeps the keys of one group apart from those of all others.
c10::intrusive_ptr<c10d::Store> c10d_store(Store& store, const std::string& prefix);

}  // namespace loom
