//! What one connection may have at a time.

use super::*;

/// One that remembers what it was told.
struct Telling(Rc<RefCell<Vec<bool>>>);

impl Link for Telling {
    fn holding(&self, holding: bool) {
        self.0.borrow_mut().push(holding);
    }
    fn room(&self) -> LocalBoxFuture<'_, ()> {
        Box::pin(async {})
    }
    fn peer(&self) -> Peer {
        Peer::Unknown
    }
}

#[test]
fn objects_are_counted_and_given_back() {
    let inside = inside();
    let mut house = (*inside.house).clone();
    house.limits.objects_max = 2;
    let told = Rc::new(RefCell::new(Vec::new()));
    let scope = Scope::new(Rc::new(house), Telling(told.clone()));
    let key = crate::model::ids::GrantKey(1);
    let claim = || Claim::new(&scope, key, powers(Rights::all(), inside.house.engine.stand(key)));
    let (one, two) = (claim().ok().unwrap(), claim().ok().unwrap());
    assert!(matches!(claim(), Err(Denied::TooManyObjects)));
    drop(one);
    let again = claim();
    assert!(again.is_ok());
    drop((again, two));
    assert_eq!(*told.borrow(), [true, false], "told when it begins and ceases to hold any");
}

#[test]
fn ops_under_way_are_counted_and_given_back() {
    let inside = inside();
    let scope = Scope::new(inside.house.clone(), Alone);
    let claim = claim_of(&inside, &scope);
    let most = claim.carry(crate::limits::OPS_IN_FLIGHT_MAX).ok().unwrap();
    assert!(matches!(claim.carry(1), Err(Denied::TooManyOps)));
    drop(most);
    assert!(claim.carry(1).is_ok());
}
